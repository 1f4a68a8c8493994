// The difference between two versions of a JSON text that changes little. An example is a policy's
// state after a decision, in which the entries of thousands of waiting jobs stay the same.
//
// A text is cut into pieces, one for each element down to the second level. The difference is a
// list of runs of old pieces and of new text. apply() gives exactly the same bytes. Only the
// changed part is cut again, so a change costs little more than comparing the two texts.
//
// Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "rubato/base/json.h"
#include "rubato/base/result.h"

namespace rubato::daemon {

class DeltaText {
 public:
  // JSON without spaces.
  explicit DeltaText(std::string text = {});

  [[nodiscard]] const std::string& text() const { return text_; }

  // Becomes `text`. What is new in it: a list of [first, count], which are old pieces, and of
  // texts.
  [[nodiscard]] Json advance(std::string text);
  // Becomes what advance() had become; after an error it is what it was.
  [[nodiscard]] Result<void> apply(const Json& delta);

 private:
  struct Cut {
    std::uint32_t end = 0;   // of a piece
    std::int32_t depth = 0;  // of brackets that are open before the character there
    friend bool operator==(const Cut&, const Cut&) = default;
  };

  struct Shared {  // with the text before, in pieces
    std::size_t front = 0;
    std::size_t back = 0;
  };
  DeltaText(std::string text, const DeltaText& before, Shared& shared);

  [[nodiscard]] std::string_view piece(std::size_t i) const;
  [[nodiscard]] bool stops_at(std::size_t end, int depth, std::size_t& piece) const;
  // Cuts the text from the last cut on. True if `before` took over: its cuts are this text's from
  // its piece `rest` on.
  bool cut_until(const DeltaText& before, std::size_t shared_tail, std::size_t& rest);

  std::string text_;
  std::vector<Cut> cuts_;  // ascending; the last is the end of the text
};

}  // namespace rubato::daemon
