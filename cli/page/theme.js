/* theme.js - light and dark theme. The page follows the system setting until the user changes the theme. */
let tellTheme = () => {};

const isDark = () => (document.documentElement.dataset.theme || (matchMedia('(prefers-color-scheme: dark)').matches ? 'dark' : 'light')) === 'dark';
const nameTheme = () => {
  $('theme').textContent = isDark() ? 'Light' : 'Dark';
  tellTheme();
};
const turnTheme = () => {
  document.documentElement.dataset.theme = isDark() ? 'light' : 'dark';
  nameTheme();
};

/* Sets up the theme button; `tell` is called after each theme change. */
const makeTheme = (tell) => {
  $('theme').addEventListener('click', turnTheme);
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', nameTheme);
  nameTheme();
  tellTheme = tell;
};
