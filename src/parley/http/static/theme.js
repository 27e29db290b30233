// Runs before the first paint, so that a dark page never flashes white.
(function () {
  var choice = null;
  try {
    choice = JSON.parse(localStorage.getItem('parley.preferences') || '{}').theme;
  } catch (_) {
    // Storage may be closed to us; the system's theme is then right.
  }
  var dark = choice === 'dark' || (choice !== 'light' && matchMedia('(prefers-color-scheme: dark)').matches);
  document.documentElement.dataset.theme = dark ? 'dark' : 'light';
})();
