#include "rubato/math/simplex.h"

#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <dlfcn.h>
#include <string>
#include <sys/mman.h>
#include <unistd.h>

// The module, as simplex_data.S includes it.
extern "C" const char rubato_simplex[];      // NOLINT(readability-identifier-naming)
extern "C" const char rubato_simplex_end[];  // NOLINT(readability-identifier-naming)

namespace rubato::math {
namespace {

using Make = Simplex* (*)();

[[noreturn]] void cannot_load(const char* why) {
  std::fprintf(stderr,
               "rubato: cannot load the solver of linear programs, which this policy needs: %s; "
               "install COIN-OR CLP (Debian: coinor-libclp1)\n",
               why);
  std::_Exit(2);
}

// The loader wants a file: an anonymous one in memory.
int module_file() {
#ifdef MFD_EXEC
  int fd = ::memfd_create("rubato_simplex", MFD_CLOEXEC | MFD_EXEC);
  if (fd < 0) fd = ::memfd_create("rubato_simplex", MFD_CLOEXEC);  // an older kernel
#else
  const int fd = ::memfd_create("rubato_simplex", MFD_CLOEXEC);
#endif
  if (fd < 0) cannot_load("no file in memory can be made");
  for (const char* at = rubato_simplex; at != rubato_simplex_end;) {
    const auto written = ::write(fd, at, static_cast<std::size_t>(rubato_simplex_end - at));
    if (written <= 0) cannot_load("there is no memory for it");
    at += written;
  }
  return fd;
}

Make load_module() {
  const int fd = module_file();
  void* module = ::dlopen(("/proc/self/fd/" + std::to_string(fd)).c_str(), RTLD_NOW | RTLD_LOCAL);
  ::close(fd);
  if (module == nullptr) cannot_load(::dlerror());
  void* make = ::dlsym(module, "rubato_make_simplex");
  if (make == nullptr) cannot_load(::dlerror());
  return reinterpret_cast<Make>(make);
}

}  // namespace

std::unique_ptr<Simplex> new_simplex() {
  static const Make make = load_module();
  return std::unique_ptr<Simplex>(make());
}

}  // namespace rubato::math
