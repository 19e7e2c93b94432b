"""The pages of ``posfeat serve`` and the JSON interface behind them."""
