// After vite: precompressed copies of what compresses, and the stamp that ties the build to its sources.
import { readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { brotliCompressSync, constants, gzipSync } from 'node:zlib';
import { stamp } from './stamp.mjs';

const web = new URL('..', import.meta.url).pathname;
const out = new URL('../../src/parley/http/static', import.meta.url).pathname;
const WORTH_BYTES = 1024;

let raw = 0;
for (const name of readdirSync(out, { recursive: true })) {
  const path = join(out, name);
  if (!statSync(path).isFile() || !/\.(js|css|html|svg|json)$/.test(name)) continue;
  const bytes = readFileSync(path);
  raw += bytes.length;
  if (bytes.length < WORTH_BYTES) continue;
  writeFileSync(`${path}.br`, brotliCompressSync(bytes, { params: { [constants.BROTLI_PARAM_QUALITY]: 11 } }));
  writeFileSync(`${path}.gz`, gzipSync(bytes, { level: 9 }));
}
writeFileSync(join(out, 'build.json'), `${JSON.stringify({ source: stamp(web) }, null, 2)}\n`);
console.log(`build: ${(raw / 1024).toFixed(0)} KB before compression`);
