#include "cmd/command_page.h"

#include <algorithm>
#include <fmt/format.h>

#include "rubato/base/text.h"

namespace rubato::cmd {
namespace {

std::vector<TextBlock> blocks_of(std::string_view text) {
  std::vector<TextBlock> blocks;
  bool joins = false;  // whether the next line continues the last block
  for (const std::string_view line : split(text, '\n')) {
    const bool literal = line.starts_with("  ");
    if (trim(line).empty()) {
      joins = false;
    } else if (!joins || blocks.back().literal != literal) {
      blocks.push_back({literal, {std::string(literal ? line.substr(2) : line)}});
      joins = true;
    } else if (literal) {
      blocks.back().lines.emplace_back(line.substr(2));
    } else {
      blocks.back().lines.back() += fmt::format(" {}", line);
    }
  }
  return blocks;
}

std::string term_of(const CLI::Option& option) {
  if (!option.nonpositional()) return option.get_type_name();
  std::string names;
  for (const std::string& name : option.get_snames()) names += fmt::format(", -{}", name);
  for (const std::string& name : option.get_lnames()) names += fmt::format(", --{}", name);
  names = names.substr(2);
  const bool takes_value = option.get_expected_max() > 0;
  return takes_value ? fmt::format("{} {}", names, option.get_type_name()) : names;
}

std::string help_of(const CLI::Option& option) {
  std::string help = option.get_description();
  if (option.get_required() && option.nonpositional()) help += " (required)";
  if (const std::string value = option.get_default_str(); !value.empty())
    help += fmt::format(" (default: {})", value);
  return help;
}

void add_terms(const CLI::App& app, CommandPage& page) {
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_group().empty()) continue;  // hidden
    const Term term{term_of(*option), help_of(*option)};
    if (!option->nonpositional()) {
      page.usage += " " + term.term;
      page.arguments.push_back(term);
      continue;
    }
    const std::string& heading = option->get_group();
    auto group = std::find_if(page.options.begin(), page.options.end(),
                              [&](const TermGroup& one) { return one.heading == heading; });
    if (group == page.options.end()) group = page.options.insert(group, {heading, {}});
    group->terms.push_back(term);
  }
}

void add_sections(const CLI::App& app, CommandPage& page) {
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
    if (command->get_group().empty()) continue;  // hidden
    // CLI11 calls the group of commands that have none "Subcommands".
    const std::string heading =
        command->get_group() == "Subcommands" ? "Commands" : command->get_group();
    auto section = std::find_if(page.sections.begin(), page.sections.end(),
                                [&](const CommandSection& one) { return one.heading == heading; });
    if (section == page.sections.end()) section = page.sections.insert(section, {heading, {}});
    section->commands.push_back(
        page_of(*command, fmt::format("{} {}", page.name, command->get_name())));
  }
}

// --- for a terminal ------------------------------------------------------------------------------

constexpr std::size_t kColumns = 80;
constexpr std::size_t kTermColumns = 27;

// Each line is indented, except the first one if `begun` characters stand there already.
std::string wrapped(std::string_view text, std::size_t indent, std::size_t begun = 0) {
  std::string out(begun < indent ? indent - begun : 0, ' ');
  std::size_t column = indent;
  for (const std::string_view word : split(text, ' ')) {
    if (column > indent && column + 1 + word.size() > kColumns) {
      out += fmt::format("\n{:{}}", "", indent);
      column = indent;
    } else if (column > indent) {
      out += ' ';
      ++column;
    }
    out += word;
    column += word.size();
  }
  return out + "\n";
}

std::string term_text(const Term& term) {
  std::string line = fmt::format("  {}", term.term);
  std::size_t begun = line.size();
  if (begun + 2 > kTermColumns) {
    line += '\n';
    begun = 0;
  }
  return line + wrapped(term.help, kTermColumns, begun);
}

std::string blocks_text(const std::vector<TextBlock>& blocks) {
  std::string out;
  bool paragraph = false;
  for (const TextBlock& block : blocks) {
    // A literal block belongs to the paragraph before it.
    if (!out.empty() && !(block.literal && paragraph)) out += '\n';
    for (const std::string& line : block.lines)
      out += block.literal ? fmt::format("  {}\n", line) : wrapped(line, 0);
    paragraph = !block.literal;
  }
  return out;
}

}  // namespace

std::string first_sentence(std::string_view text) {
  std::string first(text.substr(0, std::min(text.find(". "), text.find('\n'))));
  if (first.ends_with('.')) first.pop_back();
  return first;
}

CommandPage page_of(const CLI::App& app, const std::string& name) {
  CommandPage page;
  page.name = name;
  page.summary = first_sentence(app.get_description());
  page.description = blocks_of(app.get_description());
  page.footer = blocks_of(app.get_footer());
  add_sections(app, page);
  page.usage = name + (page.sections.empty() ? " [OPTIONS]" : " COMMAND");
  add_terms(app, page);
  return page;
}

std::string help_text(const CommandPage& page) {
  std::string out = blocks_text(page.description);
  out += fmt::format("\nUsage: {}\n", page.usage);
  const auto add_group = [&](const std::string& heading, const std::vector<Term>& terms) {
    if (!terms.empty()) out += fmt::format("\n{}:\n", heading);
    for (const Term& term : terms) out += term_text(term);
  };
  add_group("Arguments", page.arguments);
  for (const TermGroup& group : page.options) add_group(group.heading, group.terms);
  for (const CommandSection& section : page.sections) {
    out += fmt::format("\n{}:\n", section.heading);
    for (const CommandPage& command : section.commands) {
      const std::string word = command.name.substr(page.name.size() + 1);
      const std::string line = fmt::format("  {:<12}", word);
      out += line + wrapped(command.summary + ".", line.size(), line.size());
    }
  }
  if (!page.footer.empty()) out += "\n" + blocks_text(page.footer);
  return out;
}

std::string HelpFormatter::make_help(const CLI::App* app, std::string name,
                                     CLI::AppFormatMode /*mode*/) const {
  return help_text(page_of(*app, name));
}

}  // namespace rubato::cmd
