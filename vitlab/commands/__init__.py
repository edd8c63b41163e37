"""The commands of `vitlab`, one file each. `vitlab.cli` imports a command's file only when that command runs."""
