#include "rubato/base/json.h"

#include <algorithm>
#include <fmt/format.h>
#include <set>
#include <utility>
#include <vector>

#include "rubato/base/text.h"

namespace rubato {
namespace {

// Stops the parse at the first thing we refuse; the SAX position tells where.
class Guard : public nlohmann::json_sax<Json> {
 public:
  explicit Guard(int depth) : deepest_(depth) {}

  bool null() override { return true; }
  bool boolean(bool /*value*/) override { return true; }
  bool number_integer(number_integer_t /*value*/) override { return true; }
  bool number_unsigned(number_unsigned_t /*value*/) override { return true; }
  bool number_float(double /*value*/, const std::string& /*text*/) override { return true; }
  bool string(string_t& /*value*/) override { return true; }
  bool binary(binary_t& /*value*/) override { return true; }

  bool start_object(std::size_t /*elements*/) override { return open(); }
  bool start_array(std::size_t /*elements*/) override { return open(); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }

  bool key(string_t& name) override {
    if (keys_.back().insert(name).second) return true;
    problem_ = fmt::format("the key {} appears twice in one object", rubato::quoted(name));
    return false;
  }

  bool parse_error(std::size_t position, const std::string& /*token*/,
                   const nlohmann::detail::exception& /*problem*/) override {
    problem_ = fmt::format("not valid JSON near byte {}", position);
    return false;
  }

  [[nodiscard]] const std::string& problem() const { return problem_; }

 private:
  bool open() {
    keys_.emplace_back();
    if (static_cast<int>(keys_.size()) <= deepest_) return true;
    problem_ = fmt::format("nested deeper than {} levels", deepest_);
    return false;
  }
  bool close() {
    keys_.pop_back();
    return true;
  }

  int deepest_;
  std::vector<std::set<std::string>> keys_;
  std::string problem_;
};

}  // namespace

Result<Json> parse_json(std::string_view text, const std::string& source, JsonLimits limits) {
  if (text.size() > limits.bytes) {
    return Error{
        fmt::format("{}: larger than the {} bytes allowed for JSON", source, limits.bytes)};
  }
  // The library takes a zero byte for the end and would not look at what follows.
  if (const auto zero = text.find('\0'); zero != std::string_view::npos) {
    return Error{fmt::format("{}: not valid JSON near byte {}", source, zero + 1)};
  }
  Guard guard(limits.depth);
  if (!Json::sax_parse(text, &guard)) return Error{fmt::format("{}: {}", source, guard.problem())};
  Json value = Json::parse(text, nullptr, false);
  if (value.is_discarded()) return Error{fmt::format("{}: not valid JSON", source)};
  return value;
}

}  // namespace rubato
