// The one way to include torch: its logging headers define a CHECK of their own, which would
// replace ours (base/check.h) or be refused as a second definition, depending on the order of
// includes.
#pragma once

#include "rubato/base/check.h"

#pragma push_macro("CHECK")
#undef CHECK
#include <torch/torch.h>
#undef CHECK
#pragma pop_macro("CHECK")
