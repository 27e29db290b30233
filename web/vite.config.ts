import react from '@vitejs/plugin-react';
import { defineConfig } from 'vite';

// Where `npm run dev` finds the API: a real server, or `node dev/server.mjs`.
const server = 'http://127.0.0.1:8000';
const apiPaths = [
  '/api-keys', '/assistant', '/auth', '/credentials', '/dashboard', '/integrations',
  '/knowledge-bases', '/organizations', '/system', '/app/logos',
];

export default defineConfig({
  base: '/app/',
  plugins: [react()],
  server: { proxy: Object.fromEntries(apiPaths.map((path) => [path, server])) },
  build: {
    outDir: '../src/parley/http/static',
    emptyOutDir: true,
    target: 'es2022',
    // The content security policy allows no inline script and no data: script.
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
  },
});
