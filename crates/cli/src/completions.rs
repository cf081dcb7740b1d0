//! Shell completion scripts, made from the table of commands.

use std::fmt::Write;

use crate::command::{CommandOption, CommandSpec, Program, ValueKind};

fn command_names<E>(program: &Program<E>) -> String {
    program.names().collect::<Vec<_>>().join(" ")
}

/// Returns the script for bash, which doesn't need the bash-completion package.
pub fn bash<E>(program: &Program<E>) -> String {
    let mut arms = String::new();
    for command in program.commands {
        bash_arm(&mut arms, program, command);
    }
    format!(
        r#"# bash completion of {name}
_{name}() {{
    local cur=${{COMP_WORDS[COMP_CWORD]}} prev=${{COMP_WORDS[COMP_CWORD-1]}}
    local i operand=0
    COMPREPLY=()
    if (( COMP_CWORD == 1 )); then
        mapfile -t COMPREPLY < <(compgen -W "{names} --help --version" -- "$cur")
        return
    fi
    case ${{COMP_WORDS[1]}} in
{arms}    esac
}}
complete -o filenames -F _{name} {name}
"#,
        name = program.name,
        names = command_names(program),
    )
}

fn bash_arm<E>(arms: &mut String, program: &Program<E>, command: &CommandSpec<E>) {
    let _ = writeln!(arms, "    {})", command.name);
    let with_value: Vec<(&CommandOption, ValueKind)> = command
        .options()
        .filter_map(|option| Some((option, option.necessary_value()?.1)))
        .collect();
    if !with_value.is_empty() {
        arms.push_str("        case $prev in\n");
        for (option, values) in &with_value {
            let _ = writeln!(
                arms,
                "        --{}) {}; return ;;",
                option.long,
                bash_reply(program, *values)
            );
        }
        arms.push_str("        esac\n");
    }
    let options: Vec<String> = command.options().map(|o| format!("--{}", o.long)).collect();
    let _ = writeln!(
        arms,
        "        if [[ $cur == -* ]]; then\n            \
         mapfile -t COMPREPLY < <(compgen -W \"{}\" -- \"$cur\")\n            return\n        fi",
        options.join(" ")
    );
    if !command.operands.is_empty() {
        bash_operands(arms, program, command, &with_value);
    }
    arms.push_str("        ;;\n");
}

/// Writes the part of a command's arm that counts the operands before the cursor and completes the next.
fn bash_operands<E>(
    arms: &mut String,
    program: &Program<E>,
    command: &CommandSpec<E>,
    with_value: &[(&CommandOption, ValueKind)],
) {
    let skip: Vec<String> = with_value
        .iter()
        .map(|(o, _)| format!("--{}", o.long))
        .collect();
    arms.push_str("        for (( i = 2; i < COMP_CWORD; i++ )); do\n");
    arms.push_str("            case ${COMP_WORDS[i]} in\n");
    if !skip.is_empty() {
        let _ = writeln!(arms, "            {}) (( i += 1 )) ;;", skip.join("|"));
    }
    arms.push_str("            -*) ;;\n            *) (( operand += 1 )) ;;\n");
    arms.push_str("            esac\n        done\n        case $operand in\n");
    for (nth, operand) in command.operands.iter().enumerate() {
        let pattern = match operand.values {
            ValueKind::RepeatedPaths => "*".to_owned(),
            _ => nth.to_string(),
        };
        let _ = writeln!(
            arms,
            "        {pattern}) {} ;;",
            bash_reply(program, operand.values)
        );
    }
    arms.push_str("        esac\n");
}

/// Returns the bash command that fills COMPREPLY with values of the kind.
fn bash_reply<E>(program: &Program<E>, values: ValueKind) -> String {
    match values {
        ValueKind::Any | ValueKind::Optional(_) => ":".to_owned(),
        ValueKind::Paths | ValueKind::RepeatedPaths => {
            r#"mapfile -t COMPREPLY < <(compgen -f -- "$cur")"#.to_owned()
        }
        ValueKind::Folders => r#"mapfile -t COMPREPLY < <(compgen -d -- "$cur")"#.to_owned(),
        ValueKind::Words(words) => {
            format!(
                r#"mapfile -t COMPREPLY < <(compgen -W "{}" -- "$cur")"#,
                words.join(" ")
            )
        }
        ValueKind::Commands => {
            format!(
                r#"mapfile -t COMPREPLY < <(compgen -W "{}" -- "$cur")"#,
                command_names(program)
            )
        }
    }
}

/// Returns the script for zsh, to be stored as `_anthill` in a folder of `fpath`.
pub fn zsh<E>(program: &Program<E>) -> String {
    let mut text = format!(
        "#compdef {0}\n_{0}() {{\n    local -a commands\n    commands=(\n",
        program.name
    );
    for command in program.commands {
        let _ = writeln!(
            text,
            "        '{}:{}'",
            command.name,
            zsh_text(command.about)
        );
    }
    text.push_str("    )\n    if (( CURRENT == 2 )); then\n        _describe command commands\n");
    text.push_str("        return\n    fi\n    local command=$words[2]\n    shift words\n");
    text.push_str("    (( CURRENT-- ))\n    case $command in\n");
    let action = |values: ValueKind| match values {
        ValueKind::Any | ValueKind::Optional(_) => String::new(),
        ValueKind::Paths | ValueKind::RepeatedPaths => "_files".to_owned(),
        ValueKind::Folders => "_files -/".to_owned(),
        ValueKind::Words(words) => format!("({})", words.join(" ")),
        ValueKind::Commands => format!("({})", command_names(program)),
    };
    for command in program.commands {
        let mut specs = Vec::new();
        for option in command.options() {
            let about = zsh_text(option.about);
            specs.push(match option.necessary_value() {
                None => format!("'--{}[{about}]'", option.long),
                // `*` allows repeated options such as `--https`, and does no harm for other options.
                Some((name, values)) => {
                    format!(
                        "'*--{}=[{about}]:{}:{}'",
                        option.long,
                        zsh_text(name),
                        action(values)
                    )
                }
            });
        }
        for (nth, operand) in command.operands.iter().enumerate() {
            let (nth, name) = (nth + 1, zsh_text(operand.name));
            let is_repeated = matches!(operand.values, ValueKind::RepeatedPaths);
            let optional = if operand.required || is_repeated {
                ""
            } else {
                ":"
            };
            let place = match operand.values {
                ValueKind::RepeatedPaths => "*".to_owned(),
                _ => nth.to_string(),
            };
            specs.push(format!(
                "'{place}:{optional}{name}:{}'",
                action(operand.values)
            ));
        }
        let _ = writeln!(
            text,
            "    {}) _arguments \\\n        {} ;;",
            command.name,
            specs.join(" \\\n        ")
        );
    }
    text.push_str("    esac\n}\n");
    // zsh calls an autoloaded function at once. A sourced script registers the function instead.
    let name = program.name;
    let _ = writeln!(
        text,
        "if [[ $funcstack[1] == _{name} ]]; then\n    _{name} \"$@\"\nelse"
    );
    let _ = writeln!(text, "    compdef _{name} {name}\nfi");
    text
}

/// Escapes text for a quoted zsh specification, in which brackets and colons are special.
fn zsh_text(text: &str) -> String {
    let escaped = text
        .replace('\\', "\\\\")
        .replace('[', "\\[")
        .replace(']', "\\]");
    escaped.replace(':', "\\:").replace('\'', "'\\''")
}

/// Returns the script for fish.
pub fn fish<E>(program: &Program<E>) -> String {
    let quote = |text: &str| format!("'{}'", text.replace('\\', "\\\\").replace('\'', "\\'"));
    let mut text = format!(
        "# fish completion of {0}\ncomplete -c {0} -f\n",
        program.name
    );
    let arguments = |values: ValueKind| match values {
        ValueKind::Any | ValueKind::Optional(_) => String::new(),
        ValueKind::Paths | ValueKind::RepeatedPaths => " -F".to_owned(),
        ValueKind::Folders => " -a '(__fish_complete_directories)'".to_owned(),
        ValueKind::Words(words) => format!(" -a {}", quote(&words.join(" "))),
        ValueKind::Commands => format!(" -a {}", quote(&command_names(program))),
    };
    for command in program.commands {
        let name = command.name;
        let _ = writeln!(
            text,
            "complete -c {} -n __fish_use_subcommand -a {name} -d {}",
            program.name,
            quote(command.about)
        );
        let within = format!(
            "complete -c {} -n '__fish_seen_subcommand_from {name}'",
            program.name
        );
        for option in command.options() {
            let short = option
                .short
                .map_or(String::new(), |short| format!(" -s {short}"));
            let value = option.necessary_value();
            let value = value.map_or(String::new(), |(_, values)| {
                format!(" -r{}", arguments(values))
            });
            let about = quote(option.about);
            let _ = writeln!(text, "{within} -l {}{short}{value} -d {about}", option.long);
        }
        for operand in command.operands {
            let values = arguments(operand.values);
            if !values.is_empty() {
                let _ = writeln!(text, "{within}{values}");
            }
        }
    }
    text
}
