"""GPUs in slots of time have prices; jobs are let in where they pay."""
