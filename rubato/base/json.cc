#include "rubato/base/json.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <fmt/format.h>
#include <iterator>
#include <set>
#include <utility>
#include <vector>

#include "rubato/base/text.h"

namespace rubato::base {
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
    problem_ = fmt::format("the key {} appears twice in one object", base::quoted(name));
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

// Appends to a text until something cannot be said.
class Speller {
 public:
  explicit Speller(int depth) : deepest_(depth) {}

  // False at the first problem.
  bool spell(const Json& value, int depth) {
    switch (value.type()) {
      case Json::value_t::object:
        return depth < deepest_ ? object(value, depth) : refuse_depth();
      case Json::value_t::array:
        return depth < deepest_ ? array(value, depth) : refuse_depth();
      case Json::value_t::string:
        return string(value.get_ref<const std::string&>());
      case Json::value_t::number_float:
        return number(value.get<double>());
      case Json::value_t::binary:
      case Json::value_t::discarded:
        break;
      // What dump() writes, without its serializer, which costs more than a number does.
      case Json::value_t::number_unsigned:
        fmt::format_to(std::back_inserter(text_), "{}", value.get<std::uint64_t>());
        return true;
      case Json::value_t::number_integer:
        fmt::format_to(std::back_inserter(text_), "{}", value.get<std::int64_t>());
        return true;
      case Json::value_t::boolean:
        text_ += value.get<bool>() ? "true" : "false";
        return true;
      case Json::value_t::null:
        text_ += "null";
        return true;
    }
    problem_ = "a value that JSON does not know";
    return false;
  }

  [[nodiscard]] std::string& text() { return text_; }
  [[nodiscard]] const std::string& problem() const { return problem_; }

 private:
  bool refuse_depth() {
    problem_ = fmt::format("nested deeper than {} levels", deepest_);
    return false;
  }

  bool object(const Json& value, int depth) {
    std::vector<std::pair<const std::string*, const Json*>> fields;
    fields.reserve(value.size());
    for (auto at = value.begin(); at != value.end(); ++at)
      fields.emplace_back(&at.key(), &at.value());
    std::sort(fields.begin(), fields.end(),
              [](const auto& a, const auto& b) { return *a.first < *b.first; });
    text_ += '{';
    bool first = true;
    for (const auto& [key, field] : fields) {
      if (!std::exchange(first, false)) text_ += ',';
      if (!string(*key)) return false;
      text_ += ':';
      if (!spell(*field, depth + 1)) return false;
    }
    text_ += '}';
    return true;
  }

  bool array(const Json& value, int depth) {
    text_ += '[';
    bool first = true;
    for (const Json& element : value) {
      if (!std::exchange(first, false)) text_ += ',';
      if (!spell(element, depth + 1)) return false;
    }
    text_ += ']';
    return true;
  }

  bool number(double value) {
    if (!std::isfinite(value)) {
      problem_ = fmt::format("{} is no number that JSON knows", value);
      return false;
    }
    std::string digits = shortest(value);
    // Without a point it would read back as an integer, and -0 as 0.
    if (digits.find_first_of(".e") == std::string::npos) digits += ".0";
    text_ += digits;
    return true;
  }

  bool string(const std::string& value) {
    const bool plain = std::all_of(value.begin(), value.end(), [](unsigned char c) {
      return c >= 0x20 && c < 0x7F && c != '"' && c != '\\';
    });
    if (plain) {
      text_ += '"';
      text_ += value;
      text_ += '"';
      return true;
    }
    try {
      text_ += Json(value).dump();
      return true;
    } catch (const Json::exception&) {
      problem_ = fmt::format("{} is not UTF-8", base::quoted(value));
      return false;
    }
  }

  int deepest_;
  std::string text_;
  std::string problem_;
};

}  // namespace

Result<std::string> canonical_json(const Json& value, JsonLimits limits) {
  Speller speller(limits.depth);
  if (!speller.spell(value, 0)) return Error{speller.problem()};
  if (speller.text().size() > limits.bytes) {
    return Error{fmt::format("larger than the {} bytes allowed for JSON", limits.bytes)};
  }
  return std::move(speller.text());
}

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

}  // namespace rubato::base
