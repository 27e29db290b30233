/** Line icons on a 24-pixel grid. Always decoration: the words stand beside them or in a label. */
const PATHS = {
  plus: 'M12 5v14M5 12h14',
  search: 'M11 18a7 7 0 1 0 0-14 7 7 0 0 0 0 14Zm9 2-4-4',
  send: 'M12 19V5m0 0-6 6m6-6 6 6',
  stop: 'M7 7h10v10H7Z',
  check: 'm5 12.5 4.5 4.500L19 7.500',
  cross: 'M6 6l12 12M18 6 6 18',
  copy: 'M9 9h10v11H9ZM5 15V4h10',
  chevron: 'm7 10 5 5 5-5',
  forward: 'm10 7 5 5-5 5',
  back: 'm14 7-5 5 5 5',
  menu: 'M4 7h16M4 12h16M4 17h16',
  more: 'M6 12h.01M12 12h.01M18 12h.01',
  retry: 'M20 11a8 8 0 1 0-2.300 6.200M20 5v6h-6',
  edit: 'm14.500 5.500 4 4L8 20H4v-4Z',
  trash: 'M5 7h14M10 7V4h4v3m-7 0 1 13h8l1-13',
  plug: 'M9 3v5m6-5v5M6 8h12v3a6 6 0 0 1-12 0Zm6 9v4',
  chart: 'M4 20h16M7 16v-5m5 5V6m5 10v-7',
  key: 'M14.500 13.500a4.500 4.500 0 1 0-4-2.500L4 17.500V20h3v-2h2v-2h2l1.500-1.500c.6.3 1.300.5 2 .5ZM16 8h.01',
  people: 'M9 11a3.500 3.500 0 1 0 0-7 3.500 3.500 0 0 0 0 7Zm-6 9c0-3.500 2.500-6 6-6s6 2.500 6 6M16 4.500a3.500 3.500 0 0 1 0 6M17.500 14.500c2.200.8 3.500 2.800 3.500 5.500',
  list: 'M9 6h11M9 12h11M9 18h11M4.500 6h.01M4.500 12h.01M4.500 18h.01',
  gear: 'M12 15a3 3 0 1 0 0-6 3 3 0 0 0 0 6Zm7.500-3c0 .6 0 1-.1 1.500l2 1.500-2 3.400-2.400-1c-.7.6-1.500 1-2.500 1.400L14 21.500h-4l-.5-2.700c-1-.3-1.800-.8-2.500-1.400l-2.400 1-2-3.400 2-1.500a8 8 0 0 1 0-3l-2-1.500 2-3.400 2.400 1c.7-.6 1.500-1 2.500-1.400l.5-2.600h4l.5 2.600c1 .4 1.800.8 2.500 1.400l2.400-1 2 3.400-2 1.500c.1.5.1 1 .1 1.500Z',
  book: 'M5 5.500C5 4.700 5.700 4 6.500 4H19v14H6.500A1.500 1.500 0 0 0 5 19.500Zm0 14c0 .8.7 1.500 1.500 1.500H19v-3',
  down: 'M12 5v14m0 0-6-6m6 6 6-6',
  out: 'M14 5h5v5m0-5-9 9M10 6H5v13h13v-5',
  leave: 'M10 5H5v14h5m4-11 4 4-4 4m4-4H9',
  alert: 'M12 8v5m0 3.500h.01M10.300 4 3 17a2 2 0 0 0 1.700 3h14.600a2 2 0 0 0 1.700-3L13.700 4a2 2 0 0 0-3.400 0Z',
  shield: 'M12 3 5 6v5.500c0 4.500 3 7.500 7 9.500 4-2 7-5 7-9.500V6Zm-3 9 2.200 2.200L15.500 10',
  question: 'M12 21a9 9 0 1 0 0-18 9 9 0 0 0 0 18Zm-2.500-11.500c.2-1.500 1.300-2.300 2.600-2.300s2.500 1 2.500 2.300c0 2-2.600 2-2.600 4M12 16.800h.01',
  wrench: 'M14.500 6.500a4 4 0 0 1 5-1.500L17 7.500l.5 2 2 .5L22 7.500c.5 2.500-1.500 5-4.500 5-.7 0-1.300-.1-1.800-.4L8 20a2.100 2.100 0 0 1-3-3l7.800-7.700c-.3-.9-.2-2 .2-2.800Z',
  eye: 'M2.500 12S6 5.500 12 5.500 21.500 12 21.500 12 18 18.500 12 18.500 2.500 12 2.500 12Zm9.500 2.800a2.800 2.800 0 1 0 0-5.600 2.800 2.800 0 0 0 0 5.600Z',
  clock: 'M12 21a9 9 0 1 0 0-18 9 9 0 0 0 0 18Zm0-14v5.500l3.500 2',
  light: 'M12 16a4 4 0 1 0 0-8 4 4 0 0 0 0 8Zm0-13v2m0 14v2M3 12h2m14 0h2M5.600 5.600 7 7m10 10 1.400 1.400M5.600 18.400 7 17M17 7l1.400-1.400',
  star: 'm12 4 2.400 5 5.400.7-4 3.800 1 5.500L12 16.300 7.200 19l1-5.500-4-3.800L9.600 9Z',
  bolt: 'M13 3 5 14h6l-1 7 8-11h-6Z',
} as const;

export type IconName = keyof typeof PATHS;

export function Icon({ name, size = 18 }: { name: IconName; size?: number }) {
  return (
    <svg
      className="icon"
      width={size}
      height={size}
      viewBox="0 0 24 24"
      fill={name === 'stop' ? 'currentColor' : 'none'}
      stroke="currentColor"
      strokeWidth={name === 'more' ? 3 : name === 'list' ? 2.2 : 1.75}
      strokeLinecap="round"
      strokeLinejoin="round"
      aria-hidden="true"
      focusable="false"
    >
      <path d={PATHS[name]} />
    </svg>
  );
}

/** Two voices, facing each other. */
export function Mark({ size = 26 }: { size?: number }) {
  return (
    <svg width={size} height={size} viewBox="0 0 32 32" aria-hidden="true" focusable="false" className="mark">
      <rect width="32" height="32" rx="9" className="mark-ground" />
      <path d="M8 9.500h7.200v7.200h-3.700L8 20.400Z" className="mark-near" />
      <path d="M24 22.500h-7.200v-7.200h3.700l3.500-3.700Z" className="mark-far" />
    </svg>
  );
}

export function Spinner({ label }: { label?: string }) {
  return <span className="spinner" role={label ? 'img' : undefined} aria-label={label} aria-hidden={label ? undefined : true} />;
}
