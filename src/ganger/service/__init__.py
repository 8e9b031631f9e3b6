"""The daemon: owns a kernel and an engine, keeps the journal, answers over HTTP. Linux only."""
