// A moment on the wall clock: what people read, and what a deadline is. Everything else goes by the
// loop's own time (time.h). Nothing here reads a clock.
#pragma once

#include <chrono>

#include "rubato/base/namespaces.h"
#include "rubato/base/time.h"

namespace rubato::base {

using WallTime = std::chrono::sys_time<Duration>;

}  // namespace rubato::base
