// A command as its description in CLI11 says: usage, arguments, options, examples. The help on a
// terminal, the page docs/command-line.md and the man pages all print this one structure.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace rubato::cmd {

// A paragraph, or lines that are printed as they are. In a description or a footer, lines that
// begin with two spaces are such lines.
struct TextBlock {
  bool literal = false;
  std::vector<std::string> lines;  // a paragraph is one line, however long
};

// An option, or an argument that has no dashes.
struct Term {
  std::string term;  // "-n, --limit NUMBER", or "JOB ..."
  std::string help;  // with the default value
};
struct TermGroup {
  std::string heading;  // "Options", "Connection"
  std::vector<Term> terms;
};

struct CommandPage;
struct CommandSection {
  std::string heading;  // "Jobs of a cluster"
  std::vector<CommandPage> commands;
};

struct CommandPage {
  std::string name;     // "rubato users add"
  std::string summary;  // the first sentence of the description, without its full stop
  std::string usage;    // "rubato users add [OPTIONS] NAME"
  std::vector<TextBlock> description;
  std::vector<Term> arguments;
  std::vector<TermGroup> options;
  std::vector<TextBlock> footer;         // examples and exit codes
  std::vector<CommandSection> sections;  // commands of this command, without hidden ones
};

// `name` is the whole name: "rubato users add".
[[nodiscard]] CommandPage page_of(const CLI::App& app, const std::string& name);

// The first sentence, without its full stop.
[[nodiscard]] std::string first_sentence(std::string_view text);

// What holds for all commands.
[[nodiscard]] const std::vector<Term>& environment_variables();
[[nodiscard]] const std::vector<Term>& exit_codes();

// For a terminal of 80 columns.
[[nodiscard]] std::string help_text(const CommandPage& page);
// Markdown: a table of all commands, a part for each of them, and what holds for all.
[[nodiscard]] std::string markdown_text(const CommandPage& program);

struct ManPage {
  std::string file;  // "rubato-submit.1"
  std::string text;
};
// One page for the program, and one for each of its commands.
[[nodiscard]] std::vector<ManPage> man_pages(const CommandPage& program,
                                             const std::string& version);

// What --help prints.
class HelpFormatter : public CLI::FormatterBase {
 public:
  std::string make_help(const CLI::App* app, std::string name,
                        CLI::AppFormatMode mode) const override;
};

}  // namespace rubato::cmd
