// The one strict reader of JSON records: messages, files, rows of the journal, bodies of requests.
//
//   JsonTrouble trouble;
//   JsonFields fields(JsonValue(json, trouble));
//   user.name = fields["name"].text(32);
//   user.weight = fields["weight"].number(0, 1e6);
//   if (const auto role = fields.find("role")) user.role = role->choice(kRoles);
//   fields.finish();
//   if (!trouble.ok()) return trouble.error("a user");
//
// A field that is missing, unknown, of another type or out of its range is trouble. The first
// trouble is kept, with the path of the field. After it, every read returns an empty value and
// reports nothing more, so a parser needs no check after each field.
//
// Cheap to compile: everything that is not a template is in the .cc, and a parser with this reader
// uses none of the templates of the JSON library.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "rubato/base/json.h"

namespace rubato::base {

inline constexpr std::size_t kLongestJsonText = std::size_t{1} << 20U;
inline constexpr std::int64_t kMostInt64 = std::numeric_limits<std::int64_t>::max();
inline constexpr std::int64_t kLeastInt64 = std::numeric_limits<std::int64_t>::min();

// The values of an enumeration with their names, each once.
template <class E>
using NameOf = std::pair<E, std::string_view>;

// Empty if the table does not have the value.
template <class E, std::size_t kSize>
[[nodiscard]] constexpr std::string_view name_in(const std::array<NameOf<E>, kSize>& names,
                                                 E value) {
  for (const auto& [known, name] : names) {
    if (known == value) return name;
  }
  return {};
}

struct JsonProblem {
  enum class Kind : std::uint8_t { wrong, missing, unknown };
  Kind kind = Kind::wrong;
  std::string path;                // "gpus.allowed[1]"; empty: the whole
  std::string why;                 // if wrong: "must be a list"
  std::string field;               // if missing or unknown
  std::vector<std::string> known;  // if unknown: the fields there are
};

// The first problem of one reading.
class JsonTrouble {
 public:
  [[nodiscard]] bool ok() const { return !problem_; }
  // Kept unless there was one before.
  void note(JsonProblem problem);
  // For callers that write their own sentence.
  [[nodiscard]] const std::optional<JsonProblem>& problem() const { return problem_; }

  // "job.limits.min: must be a whole number from 1 to 8", where `root` is "job". There must be one.
  [[nodiscard]] std::string sentence(std::string_view root) const;
  [[nodiscard]] Error error(std::string_view root) const { return {sentence(root)}; }

 private:
  std::optional<JsonProblem> problem_;
};

// A value that is being read. It knows its position in the document, and spells the position out
// only for an error. A value inside another one must not outlive that one.
class JsonValue {
 public:
  JsonValue(const Json& json, JsonTrouble& trouble) : json_(&json), trouble_(&trouble) {}
  JsonValue(const Json& json, const JsonValue& above, std::string_view name)
      : json_(&json), trouble_(above.trouble_), above_(&above), name_(name) {}
  JsonValue(const Json& json, const JsonValue& above, std::size_t index)
      : json_(&json), trouble_(above.trouble_), above_(&above), index_(index) {}

  [[nodiscard]] const Json& json() const { return *json_; }
  [[nodiscard]] JsonTrouble& trouble() const { return *trouble_; }
  [[nodiscard]] bool ok() const { return trouble_->ok(); }
  [[nodiscard]] std::string path() const;

  void refuse(std::string_view why) const;
  // True if `holds`, and there was no trouble before. If `holds` is false, the value is refused.
  bool must_be(bool holds, std::string_view what) const;

  [[nodiscard]] bool boolean() const;
  // `least` if there is trouble.
  [[nodiscard]] std::int64_t integer(std::int64_t least, std::int64_t most) const;
  [[nodiscard]] std::uint64_t natural(
      std::uint64_t most = std::numeric_limits<std::uint64_t>::max()) const;
  template <class T>
  [[nodiscard]] T whole(T least = std::numeric_limits<T>::min(),
                        T most = std::numeric_limits<T>::max()) const {
    if constexpr (std::numeric_limits<T>::is_signed) {
      return static_cast<T>(integer(least, most));
    } else {
      return static_cast<T>(natural(most));
    }
  }
  template <class Id>
  [[nodiscard]] Id id() const {
    return Id(whole<typename Id::rep>());
  }
  // Any number; `least` to `most`, or `least` if there is trouble.
  [[nodiscard]] double number() const;
  [[nodiscard]] double number(double least, double most) const;
  [[nodiscard]] const std::string& text(std::size_t most_bytes = kLongestJsonText) const;
  // A text for the system, which may not contain NUL.
  [[nodiscard]] const std::string& system_text() const;
  // One of the names of a table. Otherwise the trouble is "must be fixed or adaptive".
  template <class E, std::size_t kSize>
  [[nodiscard]] E choice(const std::array<NameOf<E>, kSize>& names) const {
    std::array<std::string_view, kSize> words;
    for (std::size_t i = 0; i < kSize; ++i) words[i] = names[i].second;
    return names[choice_of(words)].first;
  }

  [[nodiscard]] bool is_list() const { return must_be(json_->is_array(), "a list"); }
  // A list with exactly this number of elements.
  [[nodiscard]] bool is_row(std::size_t elements) const;
  [[nodiscard]] std::size_t size() const { return json_->size(); }
  // The list must be long enough.
  [[nodiscard]] JsonValue at(std::size_t index) const& { return {(*json_)[index], *this, index}; }
  [[nodiscard]] JsonValue at(std::size_t index) && = delete;
  // read(element) for each element of a list, as long as there is no trouble.
  template <class F>
  void each(const F& read) const {
    if (!is_list()) return;
    for (std::size_t i = 0; i < json_->size() && ok(); ++i) read(JsonValue((*json_)[i], *this, i));
  }
  // read(key, value) for each field of an object, whatever its name.
  template <class F>
  void each_field(const F& read) const {
    if (!must_be(json_->is_object(), "an object")) return;
    for (auto at = json_->begin(); at != json_->end() && ok(); ++at)
      read(at.key(), JsonValue(at.value(), *this, at.key()));
  }
  [[nodiscard]] std::vector<std::string> texts() const;
  [[nodiscard]] std::vector<int> integers(int least, int most) const;
  [[nodiscard]] std::map<std::string, std::string> text_map() const;

 private:
  // 0 if there is trouble.
  [[nodiscard]] std::size_t choice_of(std::span<const std::string_view> words) const;

  const Json* json_;
  JsonTrouble* trouble_;
  const JsonValue* above_ = nullptr;
  std::string_view name_;
  std::size_t index_ = 0;
};

// The fields of an object. finish(), or the destructor, reports fields that were never asked for.
class JsonFields {
 public:
  enum class Unknown : std::uint8_t { refused, ignored };

  explicit JsonFields(const JsonValue& object, Unknown unknown = Unknown::refused);
  JsonFields(const JsonFields&) = delete;
  JsonFields& operator=(const JsonFields&) = delete;
  ~JsonFields() { finish(); }

  [[nodiscard]] bool ok() const { return object_.ok(); }
  [[nodiscard]] const JsonValue& object() const { return object_; }
  void refuse(std::string_view why) const { object_.refuse(why); }

  // A missing field is trouble.
  [[nodiscard]] JsonValue operator[](std::string_view name);
  // nullopt if there is none.
  [[nodiscard]] std::optional<JsonValue> find(std::string_view name);
  // Some fields of this object are read by another JsonFields.
  void leave(std::string_view name) { asked_.emplace_back(name); }

  void finish();

 private:
  JsonValue object_;
  bool strict_;
  std::vector<std::string> asked_;  // copies, because the fields may outlive a name
};

// For data that another version or another program may have written: a value that is not as
// expected counts as missing.
[[nodiscard]] const Json* look_for(const Json& object, std::string_view name);
[[nodiscard]] std::optional<double> look_for_number(const Json& object, std::string_view name);
[[nodiscard]] std::optional<std::int64_t> look_for_integer(const Json& object,
                                                           std::string_view name);
[[nodiscard]] std::string look_for_text(const Json& object, std::string_view name);

// "a", "a or b", "a, b or c".
[[nodiscard]] std::string alternatives(std::span<const std::string_view> words);

}  // namespace rubato::base
