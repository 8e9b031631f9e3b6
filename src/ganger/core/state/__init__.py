"""The tables and how they change: columns, facts and actions reduced, snapshots."""
