/* theme.js - light or dark theme: the system setting until the user presses the button or key. */
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

/* Calls `tell` after the theme changes. */
const makeTheme = (tell) => {
  $('theme').addEventListener('click', turnTheme);
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', nameTheme);
  nameTheme();
  tellTheme = tell;
};
