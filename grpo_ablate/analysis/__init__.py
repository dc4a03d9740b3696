"""Reading runs: tables, figures, later verdicts. Never imports torch: a report needs a laptop."""
