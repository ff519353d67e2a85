"""How the embedded zoo is trained: data, the codec, the denoisers, evaluation and model cards."""
