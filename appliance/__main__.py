"""`python -m appliance` is the `steelyard` command."""

from appliance.cli import main

if __name__ == "__main__":
    main()
