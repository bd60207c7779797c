"""What the process that workers are forked from imports: everything but the device itself."""

import suites

for name in suites.NAMES:
    suites.case_class(name)
