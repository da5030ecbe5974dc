/* theme.js - light and dark: as the system has it, until the button or the key says otherwise. */
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

/* `tell` is called when the colours have changed. */
const makeTheme = (tell) => {
  $('theme').addEventListener('click', turnTheme);
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', nameTheme);
  nameTheme();
  tellTheme = tell;
};
