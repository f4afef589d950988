"""Reads the reports of test runners: one file for each format, bytes in, a `TestReport` out.

The readers use nothing but the bytes, and rely on `protocol` alone, for the counts. The author of a report
may be hostile and may write without end: readers check only the form, bound every size, and return an
unusable input as a report with a `problem`, never raise.
"""
