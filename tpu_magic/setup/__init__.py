"""`%tpu_setup` and `%tpu_info`: versions, plan, install, verify, report."""
