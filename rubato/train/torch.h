// Include torch only through this header. Torch's logging headers define their own CHECK. Depending
// on the order of includes, it would replace ours (base/check.h) or be an error.
#pragma once

#include "rubato/base/check.h"

#pragma push_macro("CHECK")
#undef CHECK
#include <torch/torch.h>
#undef CHECK
#pragma pop_macro("CHECK")
