"""Drawing: tables, maps and plots for notebooks, and the page of all heads."""
