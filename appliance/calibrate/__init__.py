"""Teaching the box how long its own model's answers are: a job of its own process, which asks the
running daemon over HTTP like any client, of the lowest priority. docs/forecast.md, "Calibrate"."""
