// The code of the fmt library, for the program to carry: Debian ships it as a shared library only.
// Compiled with -fkeep-inline-functions, which emits what the header would leave to its users.
#define FMT_HEADER_ONLY 1
#include <fmt/format.h>
#include <locale>

// A template, so nothing emits it unasked; fmt/chrono.h needs it.
template std::locale fmt::detail::locale_ref::get<std::locale>() const;
