"""How results are written and drawn: tables and their writers, figures, the page. It only writes."""
