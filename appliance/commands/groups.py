"""Groups of commands, one of which needs no name."""

from typing import Any

import click


class DefaultGroup(click.Group):
    """`default`: the command that is meant where the first argument names none of the group. So
    `steelyard backup TARGET` is `steelyard backup take TARGET`."""

    def __init__(self, *args: Any, default: str, **more: Any) -> None:
        super().__init__(*args, **more)
        self.default = default

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if args and args[0] not in self.commands and args[0] not in ctx.help_option_names:
            args = [self.default, *args]
        return super().parse_args(ctx, args)
