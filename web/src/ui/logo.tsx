import { useState } from 'react';

/** An integration's picture from this server; its initial where there is none. */
export function Logo({ name, size = 32 }: { name: string; size?: number }) {
  const [missing, setMissing] = useState(false);
  return (
    <span className={`logo${size > 32 ? ' big' : ''}${missing || !name ? '' : ' drawn'}`} aria-hidden="true">
      {missing || !name ? (
        name.charAt(0).toUpperCase()
      ) : (
        <img
          src={`/app/logos/${encodeURIComponent(name)}`}
          alt=""
          width={size}
          height={size}
          loading="lazy"
          onError={() => setMissing(true)}
        />
      )}
    </span>
  );
}
