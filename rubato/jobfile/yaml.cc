#include "rubato/jobfile/yaml.h"

#include <exception>
#include <fmt/format.h>
#include <set>
#include <sstream>
#include <utility>
#include <vector>
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/mark.h>
#include <yaml-cpp/parser.h>

#include "rubato/base/text.h"
#include "rubato/base/unicode.h"

namespace rubato::jobfile {
namespace {

// Throws, because the library can be stopped in no other way.
class Builder : public YAML::EventHandler {
 public:
  explicit Builder(const YamlLimits& limits) : limits_(limits) {}

  void OnDocumentStart(const YAML::Mark& mark) override {
    if (documents_++ > 0) refuse(mark, "has a second document; write one job to a file");
  }
  void OnDocumentEnd() override {}
  void OnAnchor(const YAML::Mark& mark, const std::string& /*name*/) override {
    refuse(mark, "has an anchor; write out what it stands for");
  }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t /*anchor*/) override {
    refuse(mark, "has an alias; write out what it stands for");
  }
  void OnNull(const YAML::Mark& mark, YAML::anchor_t /*anchor*/) override { add(mark, Json()); }
  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t /*anchor*/,
                const std::string& value) override {
    // "?" is what the library calls a plain word, "!" a quoted one.
    if (!tag.empty() && tag != "?" && tag != "!") refuse_tag(mark);
    if (!is_utf8(value)) refuse(mark, "has a word that is not UTF-8");
    if (wants_key()) return take_key(mark, value);
    add(mark, Json(value));
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t /*anchor*/,
                       YAML::EmitterStyle::value /*style*/) override {
    open(mark, tag, Json::array());
  }
  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t /*anchor*/,
                  YAML::EmitterStyle::value /*style*/) override {
    open(mark, tag, Json::object());
  }
  void OnSequenceEnd() override { close(); }
  void OnMapEnd() override { close(); }

  [[nodiscard]] Json& value() { return value_; }

 private:
  struct Level {
    Json value;
    std::optional<std::string> key{};  // the one whose value comes next
    std::set<std::string> keys{};
    YAML::Mark mark{};
  };

  [[noreturn]] static void refuse(const YAML::Mark& mark, const std::string& what) {
    throw YAML::ParserException(mark, what);
  }
  [[noreturn]] static void refuse_tag(const YAML::Mark& mark) {
    refuse(mark, "has a tag; values need none here");
  }
  [[nodiscard]] bool wants_key() const {
    return !levels_.empty() && levels_.back().value.is_object() && !levels_.back().key;
  }
  void take_key(const YAML::Mark& mark, const std::string& name) {
    Level& level = levels_.back();
    if (!level.keys.insert(name).second)
      refuse(mark, fmt::format("has {} twice", base::quoted(name)));
    level.key = name;
  }
  void open(const YAML::Mark& mark, const std::string& tag, Json empty) {
    if (!tag.empty() && tag != "?" && tag != "!") refuse_tag(mark);
    if (wants_key()) refuse(mark, "has a key that is not a word");
    if (static_cast<int>(levels_.size()) >= limits_.depth) {
      refuse(mark, fmt::format("is nested deeper than {} levels", limits_.depth));
    }
    levels_.push_back({std::move(empty)});
    levels_.back().mark = mark;
  }
  void close() {
    Level level = std::move(levels_.back());
    levels_.pop_back();
    add(level.mark, std::move(level.value));
  }
  void add(const YAML::Mark& mark, Json value) {
    if (++values_ > limits_.values) {
      refuse(mark, fmt::format("has more than {} values", limits_.values));
    }
    if (levels_.empty()) {
      value_ = std::move(value);
      return;
    }
    Level& level = levels_.back();
    if (level.value.is_array()) return level.value.push_back(std::move(value));
    if (!level.key) refuse(mark, "has a key that is not a word");
    level.value[*level.key] = std::move(value);
    level.key.reset();
  }

  YamlLimits limits_;
  int documents_ = 0;
  std::size_t values_ = 0;
  std::vector<Level> levels_;
  Json value_;
};

}  // namespace

Result<Json> parse_yaml(std::string_view text, const std::string& source, YamlLimits limits) {
  if (text.size() > limits.bytes) {
    return Error{
        fmt::format("{}: larger than the {} bytes allowed for YAML", source, limits.bytes)};
  }
  if (!is_utf8(text) || text.find('\0') != std::string_view::npos) {
    return Error{fmt::format("{}: not UTF-8 text", source)};
  }
  std::istringstream stream{std::string(text)};
  Builder builder(limits);
  try {
    YAML::Parser parser(stream);
    while (parser.HandleNextDocument(builder)) {
    }
  } catch (const YAML::Exception& problem) {
    return Error{fmt::format("{}: line {} {}{}", source, problem.mark.line + 1,
                             problem.msg.starts_with("has ") || problem.msg.starts_with("is ")
                                 ? ""
                                 : "is not valid YAML: ",
                             for_terminal(problem.msg))};
  } catch (const std::exception& problem) {  // the library's own mistakes on broken input
    return Error{fmt::format("{}: not valid YAML", source)};
  }
  return std::move(builder.value());
}

}  // namespace rubato::jobfile
