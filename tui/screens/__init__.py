"""The nine screens: from what the box told to lines of cells. None of them knows a terminal."""
