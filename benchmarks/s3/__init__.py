"""The workloads on S3: Holdfast and bare PUTs, on one SeaweedFS of this run, with their requests counted."""
