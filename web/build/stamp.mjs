// The fingerprint of what the build is made from. tests/web/test_build.py computes the same in Python.
import { createHash } from 'node:crypto';
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';

const FILES = ['index.html', 'package-lock.json', 'package.json', 'tsconfig.json', 'vite.config.ts'];
const FOLDERS = ['build', 'public', 'src'];

/** Paths below web/ that decide the build, in order; tests do not. */
export function sources(root) {
  const found = [...FILES];
  const walk = (folder) => {
    for (const entry of readdirSync(join(root, folder), { withFileTypes: true })) {
      const path = `${folder}/${entry.name}`;
      if (entry.isDirectory()) walk(path);
      else if (!/\.test\.tsx?$/.test(entry.name)) found.push(path);
    }
  };
  FOLDERS.forEach(walk);
  return found.sort();
}

/** SHA-256 over each path and the SHA-256 of its content. */
export function stamp(root) {
  const whole = createHash('sha256');
  for (const path of sources(root)) {
    const content = createHash('sha256').update(readFileSync(join(root, path))).digest('hex');
    whole.update(`${path}\n${content}\n`);
  }
  return whole.digest('hex');
}
