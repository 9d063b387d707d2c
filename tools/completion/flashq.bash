# SPDX-License-Identifier: Apache-2.0
# Completion of flashq for bash. The words come from the program itself; topics from the broker, if
# one answers within a second.
_flashq()
{
    local current=${COMP_WORDS[COMP_CWORD]} word skip=0
    local -a words=()
    for word in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do
        if [ "$skip" = 1 ]; then
            skip=0
            continue
        fi
        case "$word" in
        -b | -O | -X | --brokers | --output | --timeout) skip=1 ;;
        -*) ;;
        *) words+=("$word") ;;
        esac
    done
    local candidates
    candidates=$(flashq complete "${words[@]}" 2>/dev/null | sort -u)
    case "${words[0]:-}" in
    pub | produce | sub | consume | replay | query | topic | partition | bench)
        if [[ $current != -* ]]; then
            candidates+=" $(flashq --timeout 1s topic list 2>/dev/null | awk 'NR > 1 { print $1 }')"
        fi
        ;;
    esac
    if [[ $current != -* && ${#words[@]} -gt 0 ]]; then
        candidates=$(printf '%s\n' $candidates | grep -v '^--')
    fi
    mapfile -t COMPREPLY < <(compgen -W "$candidates" -- "$current")
}
complete -o default -F _flashq flashq
