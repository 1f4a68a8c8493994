#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cmd/command_line.h"
#include "rubato/base/text.h"

namespace rubato::cmd {
namespace {

bool write_all(std::FILE* file, const std::string& content) {
  const bool written = std::fwrite(content.data(), 1, content.size(), file) == content.size();
  return std::fflush(file) == 0 && written;
}

Error cannot_write(const std::string& path) {
  return Error{fmt::format("{}: cannot be written: {}", path, std::strerror(errno))};
}

}  // namespace

Result<void> write_file(const std::string& path, const std::string& content) {
  if (path == "-") {
    if (!write_all(stdout, content)) return cannot_write("standard output");
    return {};
  }
  // A pipe or a device such as /dev/null cannot be replaced by a rename. It is written to directly.
  struct stat there {};
  const bool special = stat(path.c_str(), &there) == 0 && !S_ISREG(there.st_mode);
  const std::string target = special ? path : fmt::format("{}.{}.part", path, getpid());
  std::FILE* file = std::fopen(target.c_str(), "wb");
  if (file == nullptr) return cannot_write(path);
  const bool written = write_all(file, content);
  const bool closed = std::fclose(file) == 0;
  if (written && closed && (special || std::rename(target.c_str(), path.c_str()) == 0)) return {};
  const Error error = cannot_write(path);
  if (!special) std::remove(target.c_str());
  return error;
}

namespace {

CLI::Validator number_that(const std::string& is, const std::function<bool(double)>& holds) {
  return {[=](const std::string& text) {
            const auto number = parse_double(text);
            if (number && holds(*number)) return std::string();
            return fmt::format("must be {}, not {}", is, base::quoted(text));
          },
          ""};
}

}  // namespace

CLI::Validator above_zero() {
  return number_that("a number above 0", [](double number) { return number > 0; });
}

CLI::Validator zero_or_more() {
  return number_that("0 or a number above it", [](double number) { return number >= 0; });
}

CLI::Validator from_to(double least, double most) {
  return number_that(fmt::format("a number from {} to {}", least, most),
                     [=](double number) { return number >= least && number <= most; });
}

CLI::Validator one_of(const std::vector<std::string>& words) {
  return {[=](const std::string& text) {
            if (std::find(words.begin(), words.end(), text) != words.end()) return std::string();
            return fmt::format("must be one of {}, not {}", fmt::join(words, ", "),
                               base::quoted(text));
          },
          ""};
}

int bad_input(const Error& error) {
  fmt::print(stderr, "rubato: {}\n", error.message);
  return 2;
}

}  // namespace rubato::cmd
