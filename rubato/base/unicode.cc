#include "rubato/base/unicode.h"

#include <algorithm>
#include <fmt/format.h>
#include <iterator>

namespace rubato::base {
namespace {

struct Range {
  char32_t first, last;
};

// Formatting without a shape of its own (Unicode's category Cf, line separators), surrogates.
constexpr Range kInvisible[] = {
    {0x0000, 0x001F},   {0x007F, 0x009F},   {0x00AD, 0x00AD},   {0x034F, 0x034F},  {0x0600, 0x0605},
    {0x061C, 0x061C},   {0x06DD, 0x06DD},   {0x070F, 0x070F},   {0x115F, 0x1160},  {0x17B4, 0x17B5},
    {0x180B, 0x180F},   {0x200B, 0x200F},   {0x2028, 0x202E},   {0x2060, 0x206F},  {0x3164, 0x3164},
    {0xD800, 0xDFFF},   {0xFEFF, 0xFEFF},   {0xFFA0, 0xFFA0},   {0xFFF0, 0xFFFB},  {0xFFFE, 0xFFFF},
    {0x110BD, 0x110BD}, {0x1BCA0, 0x1BCAF}, {0x1D173, 0x1D17A}, {0xE0000, 0xE0FFF}};

// The blocks of combining marks.
constexpr Range kCombining[] = {
    {0x0300, 0x036F}, {0x0483, 0x0489}, {0x0591, 0x05BD}, {0x0610, 0x061A}, {0x064B, 0x065F},
    {0x06D6, 0x06DC}, {0x0730, 0x074A}, {0x0E31, 0x0E31}, {0x0E34, 0x0E3A}, {0x0E47, 0x0E4E},
    {0x1AB0, 0x1AFF}, {0x1DC0, 0x1DFF}, {0x20D0, 0x20FF}, {0x302A, 0x302D}, {0x3099, 0x309A},
    {0xFE00, 0xFE0F}, {0xFE20, 0xFE2F}};

// East Asian Width W and F, by blocks.
constexpr Range kWide[] = {
    {0x1100, 0x115E},   {0x231A, 0x231B},   {0x2329, 0x232A},   {0x23E9, 0x23EC},
    {0x23F0, 0x23F0},   {0x23F3, 0x23F3},   {0x25FD, 0x25FE},   {0x2614, 0x2615},
    {0x2648, 0x2653},   {0x267F, 0x267F},   {0x2693, 0x2693},   {0x26A1, 0x26A1},
    {0x26AA, 0x26AB},   {0x26BD, 0x26BE},   {0x26C4, 0x26C5},   {0x26CE, 0x26CE},
    {0x26D4, 0x26D4},   {0x26EA, 0x26EA},   {0x26F2, 0x26F3},   {0x26F5, 0x26F5},
    {0x26FA, 0x26FA},   {0x26FD, 0x26FD},   {0x2705, 0x2705},   {0x270A, 0x270B},
    {0x2728, 0x2728},   {0x274C, 0x274C},   {0x274E, 0x274E},   {0x2753, 0x2755},
    {0x2757, 0x2757},   {0x2795, 0x2797},   {0x27B0, 0x27B0},   {0x27BF, 0x27BF},
    {0x2B1B, 0x2B1C},   {0x2B50, 0x2B50},   {0x2B55, 0x2B55},   {0x2E80, 0x303E},
    {0x3041, 0x33FF},   {0x3400, 0x4DBF},   {0x4E00, 0x9FFF},   {0xA000, 0xA4CF},
    {0xA960, 0xA97F},   {0xAC00, 0xD7A3},   {0xF900, 0xFAFF},   {0xFE10, 0xFE19},
    {0xFE30, 0xFE6F},   {0xFF00, 0xFF60},   {0xFFE0, 0xFFE6},   {0x16FE0, 0x18DFF},
    {0x1AFF0, 0x1B2FF}, {0x1F004, 0x1F004}, {0x1F0CF, 0x1F0CF}, {0x1F18E, 0x1F18E},
    {0x1F191, 0x1F19A}, {0x1F200, 0x1F320}, {0x1F32D, 0x1F335}, {0x1F337, 0x1F37C},
    {0x1F37E, 0x1F393}, {0x1F3A0, 0x1F3CA}, {0x1F3CF, 0x1F3D3}, {0x1F3E0, 0x1F3F0},
    {0x1F3F4, 0x1F3F4}, {0x1F3F8, 0x1F43E}, {0x1F440, 0x1F440}, {0x1F442, 0x1F4FC},
    {0x1F4FF, 0x1F53D}, {0x1F54B, 0x1F54E}, {0x1F550, 0x1F567}, {0x1F57A, 0x1F57A},
    {0x1F595, 0x1F596}, {0x1F5A4, 0x1F5A4}, {0x1F5FB, 0x1F64F}, {0x1F680, 0x1F6C5},
    {0x1F6CC, 0x1F6CC}, {0x1F6D0, 0x1F6D2}, {0x1F6D5, 0x1F6D7}, {0x1F6DC, 0x1F6DF},
    {0x1F6EB, 0x1F6EC}, {0x1F6F4, 0x1F6FC}, {0x1F7E0, 0x1F7EB}, {0x1F7F0, 0x1F7F0},
    {0x1F90C, 0x1F93A}, {0x1F93C, 0x1F945}, {0x1F947, 0x1F9FF}, {0x1FA70, 0x1FAFF},
    {0x20000, 0x2FFFD}, {0x30000, 0x3FFFD}};

template <std::size_t N>
bool in(const Range (&ranges)[N], char32_t c) {
  const auto* const at = std::upper_bound(std::begin(ranges), std::end(ranges), c,
                                          [](char32_t x, const Range& r) { return x < r.first; });
  return at != std::begin(ranges) && c <= std::prev(at)->last;
}

// A pile of marks on one letter paints over the lines above.
constexpr int kMostMarks = 3;

// Calls piece(bytes, columns) for every visible character and every spelled-out one.
template <class Piece>
void pieces(std::string_view text, const Piece& piece) {
  int marks = 0;
  while (!text.empty()) {
    const auto c = first_code_point(text);
    const std::size_t bytes = c ? c->bytes : 1;
    const int width = c && visible(c->value) ? columns(c->value) : -1;
    marks = width == 0 ? marks + 1 : 0;
    if (width > 0 || (width == 0 && marks <= kMostMarks)) {
      piece(text.substr(0, bytes), width);
    } else {
      const auto byte = static_cast<unsigned char>(text[0]);
      const std::string spelled = !c || c->value < 0x80
                                      ? fmt::format("\\x{:02x}", byte)
                                      : fmt::format("\\u{{{:x}}}", static_cast<unsigned>(c->value));
      piece(std::string_view{spelled}, static_cast<int>(spelled.size()));
    }
    text.remove_prefix(bytes);
  }
}

}  // namespace

std::optional<CodePoint> first_code_point(std::string_view text) {
  const auto byte = [&](std::size_t at) { return static_cast<unsigned char>(text[at]); };
  const unsigned char lead = byte(0);
  if (lead < 0x80) return CodePoint{lead, 1};
  const std::size_t bytes = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
  if (lead < 0xC2 || lead > 0xF4 || text.size() < bytes) return std::nullopt;
  char32_t value = lead & (0x7FU >> bytes);
  for (std::size_t i = 1; i < bytes; ++i) {
    if ((byte(i) & 0xC0U) != 0x80) return std::nullopt;
    value = (value << 6U) | (byte(i) & 0x3FU);
  }
  // Longer than needed, a half of a pair, or beyond the last.
  constexpr char32_t kLeast[] = {0, 0, 0x80, 0x800, 0x10000};
  if (value < kLeast[bytes] || (value >= 0xD800 && value <= 0xDFFF) || value > 0x10FFFF) {
    return std::nullopt;
  }
  return CodePoint{value, bytes};
}

bool is_utf8(std::string_view text) {
  while (!text.empty()) {
    const auto c = first_code_point(text);
    if (!c) return false;
    text.remove_prefix(c->bytes);
  }
  return true;
}

bool visible(char32_t c) { return !in(kInvisible, c) && (c & 0xFFFEU) != 0xFFFE; }

int columns(char32_t c) {
  if (c < 0x300) return 1;
  return in(kCombining, c) ? 0 : in(kWide, c) ? 2 : 1;
}

std::string for_terminal(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  pieces(text, [&](std::string_view piece, int /*width*/) { out += piece; });
  return out;
}

int text_columns(std::string_view safe) {
  int sum = 0;
  pieces(safe, [&](std::string_view /*piece*/, int width) { sum += width; });
  return sum;
}

std::string fitted(std::string_view text, int columns) {
  if (columns <= 0) return "";
  const std::string safe = for_terminal(text);
  const int whole = text_columns(safe);
  if (whole <= columns) return safe + std::string(static_cast<std::size_t>(columns - whole), ' ');
  std::string out;
  int used = 0;
  bool full = false;
  pieces(safe, [&](std::string_view piece, int width) {
    full = full || used + width > columns - 1;
    if (full) return;
    out += piece;
    used += width;
  });
  out += '~';
  return out + std::string(static_cast<std::size_t>(columns - 1 - used), ' ');
}

}  // namespace rubato::base
