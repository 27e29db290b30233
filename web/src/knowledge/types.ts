export interface KnowledgeDocument {
  id: string;
  filename: string;
  file_size_bytes: number;
  status: 'pending' | 'processing' | 'completed' | 'failed';
  chunk_count: number | null;
  error_message: string | null;
  /** What reading it is at. */
  message?: string | null;
  created_at: string;
}

export interface Match {
  chunk_id: string;
  document_filename: string;
  score: number;
  content?: string;
}
