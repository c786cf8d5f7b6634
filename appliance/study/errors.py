"""What ends a study before its end."""


class StudyError(Exception):
    """The study cannot be run, or go on. Says why and what to do. What was answered is kept."""
