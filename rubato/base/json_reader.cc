#include "rubato/base/json_reader.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>

#include "rubato/base/check.h"
#include "rubato/base/text.h"

namespace rubato::base {
namespace {

const Json& nothing() {
  static const Json null;
  return null;
}

const std::string& no_text() {
  static const std::string empty;
  return empty;
}

// nullopt if it is no integer, or none of 64 bits with a sign.
std::optional<std::int64_t> as_integer(const Json& json) {
  if (const auto* natural = json.get_ptr<const Json::number_unsigned_t*>()) {
    if (*natural > static_cast<std::uint64_t>(kMostInt64)) return std::nullopt;
    return static_cast<std::int64_t>(*natural);
  }
  const auto* integer = json.get_ptr<const Json::number_integer_t*>();
  return integer == nullptr ? std::nullopt : std::optional<std::int64_t>(*integer);
}

std::optional<double> as_number(const Json& json) {
  if (const auto* number = json.get_ptr<const Json::number_float_t*>()) return *number;
  if (const auto* natural = json.get_ptr<const Json::number_unsigned_t*>())
    return static_cast<double>(*natural);
  if (const auto* integer = json.get_ptr<const Json::number_integer_t*>())
    return static_cast<double>(*integer);
  return std::nullopt;
}

const Json* field_of(const Json& object, std::string_view name) {
  const auto& fields = object.get_ref<const Json::object_t&>();
  const auto found = std::find_if(fields.begin(), fields.end(),
                                  [&](const auto& field) { return field.first == name; });
  return found == fields.end() ? nullptr : &found->second;
}

}  // namespace

// --- trouble -------------------------------------------------------------------------------------

void JsonTrouble::note(JsonProblem problem) {
  if (ok()) problem_ = std::move(problem);
}

std::string JsonTrouble::sentence(std::string_view root) const {
  CHECK(problem_.has_value());
  const auto& [kind, path, why, field, known] = *problem_;
  const bool joined = path.empty() || path.starts_with('[');
  const std::string place = fmt::format("{}{}{}", root, joined ? "" : ".", path);
  switch (kind) {
    case JsonProblem::Kind::wrong:
      return fmt::format("{}: {}", place, why);
    case JsonProblem::Kind::missing:
      return fmt::format("{}: lacks the field {}", place, base::quoted(field));
    case JsonProblem::Kind::unknown:
      return fmt::format("{}: has the unknown field {}", place, base::quoted(field));
  }
  CHECK(false);
}

// --- values --------------------------------------------------------------------------------------

// Keys may be anything; a sentence is one readable line.
std::string JsonValue::path() const {
  if (above_ == nullptr) return "";
  std::string path = above_->path();
  if (name_.data() == nullptr) return path + fmt::format("[{}]", index_);
  if (!path.empty()) path += '.';
  const std::string name = base::quoted(name_);
  const bool plain = name.size() == name_.size() + 2;
  return path + (plain ? std::string(name_) : name);
}

void JsonValue::refuse(std::string_view why) const {
  if (!ok()) return;
  trouble_->note({JsonProblem::Kind::wrong, path(), std::string(why), {}, {}});
}

bool JsonValue::must_be(bool holds, std::string_view what) const {
  if (!ok()) return false;
  if (!holds) refuse(fmt::format("must be {}", what));
  return holds;
}

bool JsonValue::boolean() const {
  return must_be(json_->is_boolean(), "true or false") && *json_->get_ptr<const bool*>();
}

std::int64_t JsonValue::integer(std::int64_t least, std::int64_t most) const {
  if (!ok()) return least;
  const auto number = as_integer(*json_);
  if (number && *number >= least && *number <= most) return *number;
  refuse(fmt::format("must be a whole number from {} to {}", least, most));
  return least;
}

std::uint64_t JsonValue::natural(std::uint64_t most) const {
  if (!ok()) return 0;
  const auto* number = json_->get_ptr<const Json::number_unsigned_t*>();
  if (number != nullptr && *number <= most) return *number;
  // Whoever builds a value instead of parsing one may have written a small one with a sign.
  const auto* with_sign =
      number == nullptr ? json_->get_ptr<const Json::number_integer_t*>() : nullptr;
  if (with_sign != nullptr && *with_sign >= 0 && static_cast<std::uint64_t>(*with_sign) <= most)
    return static_cast<std::uint64_t>(*with_sign);
  refuse(fmt::format("must be a whole number from 0 to {}", most));
  return 0;
}

double JsonValue::number() const {
  const auto number = as_number(*json_);
  return must_be(number.has_value(), "a number") ? *number : 0;
}

double JsonValue::number(double least, double most) const {
  if (!ok()) return least;
  const auto number = as_number(*json_);
  if (number && *number >= least && *number <= most) return *number;
  refuse(fmt::format("must be a number from {:g} to {:g}", least, most));
  return least;
}

const std::string& JsonValue::text(std::size_t most_bytes) const {
  if (!must_be(json_->is_string(), "text")) return no_text();
  const auto& text = json_->get_ref<const std::string&>();
  if (text.size() <= most_bytes) return text;
  refuse(fmt::format("is longer than {} bytes", most_bytes));
  return no_text();
}

const std::string& JsonValue::system_text() const {
  const auto* text = json_->get_ptr<const std::string*>();
  const bool fits = text != nullptr && text->find('\0') == std::string::npos;
  return must_be(fits, "text without a NUL") ? *text : no_text();
}

std::size_t JsonValue::choice_of(std::span<const std::string_view> words) const {
  if (!ok()) return 0;
  const auto* text = json_->get_ptr<const std::string*>();
  const auto found = text == nullptr ? words.end() : std::find(words.begin(), words.end(), *text);
  if (found != words.end()) return static_cast<std::size_t>(found - words.begin());
  refuse(fmt::format("must be {}", alternatives(words)));
  return 0;
}

bool JsonValue::is_row(std::size_t elements) const {
  if (!ok()) return false;
  if (json_->is_array() && json_->size() == elements) return true;
  refuse(fmt::format("must be a list of {}", elements));
  return false;
}

std::vector<std::string> JsonValue::texts() const {
  std::vector<std::string> all;
  each([&](const JsonValue& element) { all.push_back(element.system_text()); });
  return all;
}

std::vector<int> JsonValue::integers(int least, int most) const {
  std::vector<int> all;
  each([&](const JsonValue& element) { all.push_back(element.whole(least, most)); });
  return all;
}

std::map<std::string, std::string> JsonValue::text_map() const {
  std::map<std::string, std::string> all;
  each_field(
      [&](const std::string& key, const JsonValue& value) { all[key] = value.system_text(); });
  return all;
}

// --- fields --------------------------------------------------------------------------------------

JsonFields::JsonFields(const JsonValue& object, Unknown unknown)
    : object_(object), strict_(unknown == Unknown::refused) {
  if (object_.must_be(object_.json().is_object(), "an object"))
    asked_.reserve(object_.json().size());
}

std::optional<JsonValue> JsonFields::find(std::string_view name) {
  asked_.emplace_back(name);
  if (!object_.json().is_object()) return std::nullopt;
  const Json* found = field_of(object_.json(), name);
  if (found == nullptr) return std::nullopt;
  return JsonValue(*found, object_, name);
}

JsonValue JsonFields::operator[](std::string_view name) {
  if (const auto found = find(name)) return *found;
  if (ok()) {
    object_.trouble().note({JsonProblem::Kind::missing, object_.path(), {}, std::string(name), {}});
  }
  return {nothing(), object_, name};
}

void JsonFields::finish() {
  if (!ok() || !strict_) return;
  for (const auto& [name, value] : object_.json().get_ref<const Json::object_t&>()) {
    if (std::find(asked_.begin(), asked_.end(), name) != asked_.end()) continue;
    object_.trouble().note({JsonProblem::Kind::unknown, object_.path(), {}, name, asked_});
    return;
  }
}

// --- what may be anything ------------------------------------------------------------------------

const Json* look_for(const Json& object, std::string_view name) {
  return object.is_object() ? field_of(object, name) : nullptr;
}

std::optional<double> look_for_number(const Json& object, std::string_view name) {
  const Json* found = look_for(object, name);
  const auto number = found == nullptr ? std::nullopt : as_number(*found);
  return number && std::isfinite(*number) ? number : std::nullopt;
}

std::optional<std::int64_t> look_for_integer(const Json& object, std::string_view name) {
  const Json* found = look_for(object, name);
  return found == nullptr ? std::nullopt : as_integer(*found);
}

std::string look_for_text(const Json& object, std::string_view name) {
  const Json* found = look_for(object, name);
  const auto* text = found == nullptr ? nullptr : found->get_ptr<const std::string*>();
  return text == nullptr ? "" : *text;
}

std::string alternatives(std::span<const std::string_view> words) {
  std::string text;
  for (std::size_t i = 0; i < words.size(); ++i) {
    text += i == 0 ? "" : i + 1 == words.size() ? " or " : ", ";
    text += words[i];
  }
  return text;
}

}  // namespace rubato::base
