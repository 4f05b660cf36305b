/* How `killline audit` prints records: as JSON, one object per line, and as lines for people. To stdout,
 * whose errors are the caller's to ask for. */
#ifndef AUDIT_PRINT_H
#define AUDIT_PRINT_H

#include "audit.h"

/* "key":"text" of at most size bytes, up to the first NUL. Bytes that are not printable ASCII are shown as
 * the code point of the same value: always valid JSON, and no byte is lost. */
void audit_print_json_string(const char *key, const char *text, size_t size);
void audit_print_json_hex(const char *key, const uint8_t *bytes, size_t size);
/* Without the padding. */
size_t audit_print_symbol_length(const char symbol[8]);

/* Every field of a record, and a newline. Enough to give every verdict anew: raw stamps, age, threshold. An
 * age that is not known is null in ns (age_cycles is UINT64_MAX); what version 1 had not is null. */
void audit_print_json(const struct audit_header *header, const struct audit_record *record);
/* One line, with what could steer a terminal replaced; and the line above such lines. */
void audit_print_head(void);
void audit_print_text(const struct audit_header *header, const struct audit_record *record);

#endif
