"""What test runners write, turned into one form: bytes in, `TestReport` out, nothing believed."""
