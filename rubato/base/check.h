// CHECK: our own bugs stop the program with the place and the condition, in every build.
// Errors of the outside world are Results (base/result.h), never CHECKs.
#pragma once

#include "rubato/base/namespaces.h"

namespace rubato::base {

[[noreturn]] void check_failed(const char* condition, const char* file, int line);

}  // namespace rubato::base

#define CHECK(condition)                               \
  (static_cast<bool>(condition) ? static_cast<void>(0) \
                                : ::rubato::base::check_failed(#condition, __FILE__, __LINE__))
