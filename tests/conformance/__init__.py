"""Our expressions beside the cases of cel-spec: `make cel-conformance`."""
