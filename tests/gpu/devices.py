"""On which devices the tests of this folder run."""

import pytest
import torch

GPU = "cuda:0"
ON_GPU = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]
