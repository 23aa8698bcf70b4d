// Before anything is drawn: the theme that was chosen last, else the system's.
try {
  const chosen = localStorage.getItem("poundlock-theme");
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
} catch { /* a browser that keeps nothing has the system's theme */ }
