#include "rubato/base/check.h"

#include <cstdio>
#include <cstdlib>

namespace rubato::base {

void check_failed(const char* condition, const char* file, int line) {
  std::fprintf(stderr, "rubato: internal error at %s:%d: CHECK(%s) failed\n", file, line,
               condition);
  std::abort();
}

}  // namespace rubato::base
