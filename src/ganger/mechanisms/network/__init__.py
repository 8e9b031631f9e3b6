"""On what terms jobs share the links between nodes."""
