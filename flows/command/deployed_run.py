"""Entry point of a run that Prefect's worker starts: Prefect's engine, without settings files in the working folder."""

import runpy

from shunter.flows.command.prefect_settings import ignore_settings_files

if __name__ == "__main__":
    ignore_settings_files()
    runpy.run_module("prefect.engine", run_name="__main__", alter_sys=True)
